// Which instruction set runs, what is kept between calls, and how a call is cut into pieces that threads share out.

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"
#include "running.h"

namespace nezha {
namespace {

// The best first.
std::vector<const InstructionSet*> find_sets() {
  std::vector<const InstructionSet*> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    sets.push_back(&avx512);
  if (has_avx2) sets.push_back(&avx2);
#endif
  sets.push_back(&portable);
  return sets;
}
const std::vector<const InstructionSet*>& runnable_sets() {
  static const std::vector<const InstructionSet*> sets = find_sets();
  return sets;
}

template <class T>
const Kernels<T>& kernels_of(const InstructionSet& set);
template <>
const Kernels<float>& kernels_of<float>(const InstructionSet& set) {
  return set.single;
}
template <>
const Kernels<double>& kernels_of<double>(const InstructionSet& set) {
  return set.twofold;
}

// Memory aligned to a cache line, which is also the widest vector.
template <class T>
class Block {
 public:
  explicit Block(size_t count) : bytes_(count * sizeof(T)), raw_(new char[bytes_ + 63]) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(raw_.get());
    data_ = reinterpret_cast<T*>(raw_.get() + (64 - at % 64) % 64);
  }
  T* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  std::unique_ptr<char[]> raw_;
  T* data_;
};

// A thread's scratch, kept for its next call unless it is large.
template <class T>
class Scratch {
 public:
  T* at_least(size_t count) {
    if (!block_ || block_->bytes() < count * sizeof(T)) {
      block_.reset();
      block_.reset(new Block<T>(count));
    }
    return block_->data();
  }
  void release() {
    if (block_ && block_->bytes() > kKept) block_.reset();
  }

 private:
  static constexpr size_t kKept = size_t(8) << 20;
  std::unique_ptr<Block<T>> block_;
};
template <class T>
Scratch<T>& scratch_of_thread() {
  static thread_local Scratch<T> scratch;
  return scratch;
}

// Guards the tables that are kept. A fork waits for it: the child would find it locked for ever.
std::mutex tables_mutex;
const int waits_at_fork =
    pthread_atfork([] { tables_mutex.lock(); }, [] { tables_mutex.unlock(); }, [] { tables_mutex.unlock(); });

// The sinusoid tables of m, for distances up to `reach`, in the order an instruction set reads them.
template <class T>
struct FixedTables {
  const InstructionSet* set;
  int m, reach, head_size;
  std::shared_ptr<const Block<T>> block;
};

// Those that calls used last are kept, up to kKept bytes, or the last alone; a call holds its own as long as it runs.
template <class T>
std::shared_ptr<const Block<T>> fixed_tables(const InstructionSet& set, int m, int reach, int head_size) {
  constexpr size_t kKept = size_t(32) << 20;
  static std::vector<FixedTables<T>> kept;  // the last used is the last
  const auto is_it = [&](const FixedTables<T>& one) {
    return one.set == &set && one.m == m && one.reach == reach && one.head_size == head_size;
  };
  {
    const std::lock_guard<std::mutex> lock(tables_mutex);
    const auto found = std::find_if(kept.begin(), kept.end(), is_it);
    if (found != kept.end()) {
      std::rotate(found, found + 1, kept.end());
      return kept.back().block;
    }
  }
  // Not under the lock, where other calls and forks would wait. Two threads may both make the same.
  const Kernels<T>& kernels = kernels_of<T>(set);
  const std::shared_ptr<Block<T>> block = std::make_shared<Block<T>>(kernels.fixed_size(reach, head_size));
  kernels.make_fixed(m, reach, head_size, block->data());
  std::vector<FixedTables<T>> given_up;  // and freed when the lock is
  const std::lock_guard<std::mutex> lock(tables_mutex);
  if (std::none_of(kept.begin(), kept.end(), is_it)) kept.push_back({&set, m, reach, head_size, block});
  size_t bytes = 0;
  auto first = kept.end();
  while (first != kept.begin() && (first == kept.end() || bytes + (first - 1)->block->bytes() <= kKept))
    bytes += (--first)->block->bytes();
  given_up.assign(kept.begin(), first);
  kept.erase(kept.begin(), first);
  return block;
}

template <class T>
int64_t length_of(const Call<T>& call, int64_t sequence) {
  return call.starts[sequence + 1] - call.starts[sequence];
}

// Items, the longest first. With few heads the queries of each are shared out, if more pieces are `wanted`.
template <class T>
std::vector<Item> items_of(const Call<T>& call, int64_t wanted) {
  std::vector<Item> items;
  const int64_t heads = std::max<int64_t>(1, call.sequences * call.heads);
  const int64_t parts = std::max<int64_t>(1, (wanted + heads - 1) / heads);
  std::vector<int64_t> order(static_cast<size_t>(call.sequences));
  for (int64_t s = 0; s < call.sequences; s++) order[static_cast<size_t>(s)] = s;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return length_of(call, a) > length_of(call, b); });
  for (const int64_t sequence : order) {
    const int64_t length = length_of(call, sequence);
    // A part packs keys and values anew: no shorter than what makes that small beside its own work.
    const int64_t size = std::max<int64_t>(192, (length + parts - 1) / parts);
    for (int head = 0; head < call.heads; head++)
      for (int64_t first = 0; first < length; first += size)
        items.push_back({sequence, head, first, std::min(length, first + size)});
  }
  return items;
}

template <class T>
size_t scratch_needed(const Kernels<T>& kernels, const Call<T>& call, bool backward) {
  // Of every sequence: a longer one has fewer queries in a block, and may need less.
  size_t most = 0;
  int64_t last = -1;
  for (int64_t s = 0; s < call.sequences; s++) {
    const int64_t length = length_of(call, s);
    if (length != last) most = std::max(most, kernels.scratch_size(call, length, backward));
    last = length;
  }
  return most;
}

// A call with its tables. They, and the call's reach, are cut to the distances between the tokens of its sequences: what
// is beyond costs nothing and is not read.
template <class T>
struct Prepared {
  Call<T> call;
  const T* fixed = nullptr;  // as the kernels take it

  Prepared(const InstructionSet& set, const Call<T>& given) : call(given) {
    int64_t longest = 1;
    for (int64_t s = 0; s < call.sequences; s++) longest = std::max(longest, length_of(call, s));
    if (call.encoding == Encoding::functional_relative) prepare_fixed(set, longest);
    if (call.encoding == Encoding::parametric_relative) prepare_learned(set, longest);
  }

 private:
  std::shared_ptr<const Block<T>> fixed_block_;
  std::unique_ptr<Block<T>> learned_block_;
  std::vector<T> rows_;

  void prepare_fixed(const InstructionSet& set, int64_t longest) {
    int64_t reach = 128;  // in powers of two, so that lengths share tables
    while (reach < longest - 1) reach *= 2;
    const int m = call.reach;
    call.reach = static_cast<int>(std::min<int64_t>(m, reach));
    fixed_block_ = fixed_tables<T>(set, m, call.reach, call.head_size);
    fixed = fixed_block_->data();
  }

  void prepare_learned(const InstructionSet& set, int64_t longest) {
    if (call.reach >= longest) {
      // One row on each side that no pair is at, so that no key lies in a tail: the kernels round as they do uncut.
      const int64_t m = call.reach, reach = longest, size = call.head_size;
      rows_.assign(static_cast<size_t>(2 * (2 * reach + 1) * size), T(0));
      for (int64_t table = 0; table < 2; table++)
        std::copy_n(call.tables + (table * (2 * m + 1) + m - (reach - 1)) * size, (2 * reach - 1) * size,
                    &rows_[static_cast<size_t>((table * (2 * reach + 1) + 1) * size)]);
      call.tables = rows_.data();
      call.reach = static_cast<int>(reach);
    }
    const Kernels<T>& kernels = kernels_of<T>(set);
    learned_block_.reset(new Block<T>(kernels.learned_size(call)));
    kernels.make_learned(call, learned_block_->data());
    fixed = learned_block_->data();
  }
};

}  // namespace

std::string runnable_names() {
  std::string names;
  for (const InstructionSet* set : runnable_sets()) names += (names.empty() ? "" : ", ") + std::string(set->name);
  return names;
}

const InstructionSet& chosen_set() {
  const char* wanted = std::getenv("PADDLE_NEZHA_ISA");
  if (wanted == nullptr || *wanted == 0) return *runnable_sets().front();
  for (const InstructionSet* set : runnable_sets())
    if (std::strcmp(set->name, wanted) == 0) return *set;
  throw std::invalid_argument("PADDLE_NEZHA_ISA must name an instruction set that this processor runs (" +
                              runnable_names() + "), but is '" + wanted + "': unset it to take the first of these.");
}

template <class T>
void run_forward(const Call<T>& given, const Parallel& parallel) {
  const InstructionSet& set = chosen_set();
  const Kernels<T>& kernels = kernels_of<T>(set);
  const Prepared<T> prepared(set, given);
  const Call<T>& call = prepared.call;
  // Four items a thread even out what differs between them.
  const std::vector<Item> items = items_of(call, parallel.threads > 1 ? 4 * parallel.threads : 1);
  const size_t needed = scratch_needed(kernels, call, false);
  parallel.run(static_cast<int64_t>(items.size()), [&](int64_t i) {
    Scratch<T>& scratch = scratch_of_thread<T>();
    kernels.forward(call, items[static_cast<size_t>(i)], prepared.fixed, scratch.at_least(needed));
    scratch.release();
  });
}

template <class T>
void run_backward(const Call<T>& given, T* grad_bias, T* grad_tables, const Parallel& parallel) {
  const InstructionSet& set = chosen_set();
  const Kernels<T>& kernels = kernels_of<T>(set);
  const Prepared<T> prepared(set, given);
  const Call<T>& call = prepared.call;
  const std::vector<Item> items = items_of(call, 1);
  const size_t needed = scratch_needed(kernels, call, true), count = items.size();
  // Sums over items, in an order that does not depend on the number of threads, so that the result does not either:
  // biases item by item, the larger tables in groups of items, each group in order.
  const size_t biases = 3 * static_cast<size_t>(call.head_size);
  std::vector<T> bias_parts(count * biases);
  const bool has_tables = call.encoding == Encoding::parametric_relative;
  const size_t size = has_tables ? 2 * (2 * static_cast<size_t>(call.reach) + 1) * static_cast<size_t>(call.head_size) : 0;
  const size_t groups = has_tables ? std::min<size_t>(count, 32) : count;
  std::vector<T> table_parts(has_tables ? groups * size : 0, T(0));
  parallel.run(static_cast<int64_t>(groups), [&](int64_t g) {
    const size_t group = static_cast<size_t>(g);
    Scratch<T>& scratch = scratch_of_thread<T>();
    for (size_t i = group; i < count; i += groups)
      kernels.backward(call, items[i], prepared.fixed, scratch.at_least(needed), &bias_parts[i * biases],
                       has_tables ? &table_parts[group * size] : nullptr);
    scratch.release();
  });
  const size_t head_size = static_cast<size_t>(call.head_size), width = static_cast<size_t>(call.heads) * head_size;
  std::fill(grad_bias, grad_bias + 3 * width, T(0));
  for (size_t i = 0; i < count; i++)
    for (size_t part = 0; part < 3; part++)
      for (size_t j = 0; j < head_size; j++)
        grad_bias[part * width + static_cast<size_t>(items[i].head) * head_size + j] +=
            bias_parts[i * biases + part * head_size + j];
  if (!has_tables) return;
  // Of the whole tables: what was cut off gets 0.
  const size_t whole = (2 * static_cast<size_t>(given.reach) + 1) * head_size, part = size / 2;
  const size_t cut = static_cast<size_t>(given.reach - call.reach) * head_size;
  std::fill(grad_tables, grad_tables + 2 * whole, T(0));
  for (size_t group = 0; group < groups; group++)
    for (size_t table = 0; table < 2; table++)
      for (size_t i = 0; i < part; i++)
        grad_tables[table * whole + cut + i] += table_parts[group * size + table * part + i];
}

namespace {

// Rows of one piece: few enough to share out, and the sums over a piece are short.
constexpr int64_t kRowsOfPiece = 64;

int64_t pieces_of(int64_t rows) { return (rows + kRowsOfPiece - 1) / kRowsOfPiece; }

// Runs work(first row, last row, sums) over all rows; `sums` [size] is zero for each piece. Their total, added in order.
template <class T>
void summed(int64_t rows, size_t size, T* total, const Parallel& parallel,
            const std::function<void(int64_t, int64_t, T*)>& work) {
  const int64_t pieces = pieces_of(rows);
  std::vector<T> sums(static_cast<size_t>(pieces) * size, T(0));
  parallel.run(pieces, [&](int64_t i) {
    work(i * kRowsOfPiece, std::min(rows, (i + 1) * kRowsOfPiece), &sums[static_cast<size_t>(i) * size]);
  });
  std::fill(total, total + size, T(0));
  for (size_t i = 0; i < static_cast<size_t>(pieces); i++)
    for (size_t j = 0; j < size; j++) total[j] += sums[i * size + j];
}

}  // namespace

template <class T>
void run_gelu_forward(const GeluCall<T>& call, const Parallel& parallel) {
  const Kernels<T>& kernels = kernels_of<T>(chosen_set());
  parallel.run(pieces_of(call.rows), [&](int64_t i) {
    kernels.gelu_forward(call, i * kRowsOfPiece, std::min(call.rows, (i + 1) * kRowsOfPiece));
  });
}

template <class T>
void run_gelu_backward(const GeluCall<T>& call, T* grad_bias, const Parallel& parallel) {
  const Kernels<T>& kernels = kernels_of<T>(chosen_set());
  summed<T>(call.rows, static_cast<size_t>(call.width), grad_bias, parallel,
            [&](int64_t first, int64_t last, T* sums) { kernels.gelu_backward(call, first, last, sums); });
}

template <class T>
void run_norm_forward(const NormCall<T>& call, const Parallel& parallel) {
  const Kernels<T>& kernels = kernels_of<T>(chosen_set());
  parallel.run(pieces_of(call.rows), [&](int64_t i) {
    T* scratch = scratch_of_thread<T>().at_least(kernels.norm_scratch(call.width));
    kernels.norm_forward(call, i * kRowsOfPiece, std::min(call.rows, (i + 1) * kRowsOfPiece), scratch);
  });
}

template <class T>
void run_norm_backward(const NormCall<T>& call, T* grad_parameters, const Parallel& parallel) {
  const Kernels<T>& kernels = kernels_of<T>(chosen_set());
  summed<T>(call.rows, 3 * static_cast<size_t>(call.width), grad_parameters, parallel,
            [&](int64_t first, int64_t last, T* sums) {
              T* scratch = scratch_of_thread<T>().at_least(kernels.norm_scratch(call.width));
              kernels.norm_backward(call, first, last, scratch, sums);
            });
}

#define NEZHA_FOR(T)                                                            \
  template void run_forward<T>(const Call<T>&, const Parallel&);                \
  template void run_backward<T>(const Call<T>&, T*, T*, const Parallel&);       \
  template void run_gelu_forward<T>(const GeluCall<T>&, const Parallel&);       \
  template void run_gelu_backward<T>(const GeluCall<T>&, T*, const Parallel&);  \
  template void run_norm_forward<T>(const NormCall<T>&, const Parallel&);       \
  template void run_norm_backward<T>(const NormCall<T>&, T*, const Parallel&);
NEZHA_FOR(float)
NEZHA_FOR(double)
#undef NEZHA_FOR

}  // namespace nezha
