// The operator's core on its own, without Paddle: many calls against the definition as plain loops, on std::thread, so
// that sanitizers see it whole. Ends 0 and says how many calls it made, or names the call that went wrong.
//
// Memory is handed out full of NaN: whatever reads a number before writing it spoils its result.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "running.h"
#include "spanning.h"

// ---- memory full of NaN

// Not inlined: GCC would see std::free on what operator new gave, and warn of a mismatch that is none.
#define APART __attribute__((noinline))
APART static void* spoiled(std::size_t size) {
  void* memory = std::malloc(size ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0xFF, size);
  return memory;
}
APART static void released(void* memory) { std::free(memory); }
void* operator new(std::size_t size) { return spoiled(size); }
void* operator new[](std::size_t size) { return spoiled(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return spoiled(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return spoiled(size); }
void operator delete(void* memory) noexcept { released(memory); }
void operator delete[](void* memory) noexcept { released(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { released(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { released(memory); }
void operator delete(void* memory, std::size_t) noexcept { released(memory); }
void operator delete[](void* memory, std::size_t) noexcept { released(memory); }

namespace {

using nezha::Call;
using nezha::Encoding;

// ---- numbers that are the same everywhere

struct Draw {
  uint64_t state;
  uint64_t next() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state >> 33;
  }
  int64_t below(int64_t end) { return static_cast<int64_t>(next() % static_cast<uint64_t>(end)); }
  double uniform() { return (static_cast<double>(next()) + 0.5) / 2147483648.0; }
  double normal() { return std::sqrt(-2.0 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }
};

template <class T>
std::vector<T> drawn(Draw* draw, size_t count) {
  std::vector<T> numbers(count);
  for (T& x : numbers) x = static_cast<T>(draw->normal());
  return numbers;
}

enum class Mask { none, padding, left_padding, holes, nothing };

struct Case {
  std::vector<int64_t> lengths;
  int heads, head_size, reach;
  Encoding encoding;
  Mask mask;
  double dropout;

  std::string text() const {
    std::string out = "lengths";
    for (const int64_t length : lengths) out += " " + std::to_string(length);
    return out + ", heads " + std::to_string(heads) + ", head size " + std::to_string(head_size) + ", m " +
           std::to_string(reach) + ", encoding " + std::to_string(static_cast<int>(encoding)) + ", mask " +
           std::to_string(static_cast<int>(mask)) + ", dropout " + std::to_string(dropout);
  }
};

std::vector<uint8_t> visible_of(const Case& one, Draw* draw) {
  std::vector<uint8_t> visible;
  for (const int64_t length : one.lengths) {
    const int64_t edge = draw->below(length + 1);
    for (int64_t t = 0; t < length; t++) {
      bool seen = true;
      if (one.mask == Mask::padding) seen = t < edge;
      if (one.mask == Mask::left_padding) seen = t >= edge;
      if (one.mask == Mask::holes) seen = draw->uniform() < 0.6;
      if (one.mask == Mask::nothing) seen = false;
      visible.push_back(seen);
    }
  }
  return visible;
}

// Threads made for each run, so that no scratch of an earlier call hides that this one asked for too little.
nezha::Parallel on(int threads) {
  return {threads, [threads](int64_t count, const std::function<void(int64_t)>& work) {
            std::vector<std::thread> team;
            for (int thread = 0; thread < threads; thread++)
              team.emplace_back([=, &work] {
                for (int64_t i = thread; i < count; i += threads) work(i);
              });
            for (std::thread& one : team) one.join();
          }};
}

// ---- one call, and what comes of it

template <class T>
struct Given {
  std::vector<int32_t> starts;
  std::vector<uint8_t> visible;
  std::vector<T> qkv, bias, tables, grad_out;
  uint64_t seed;
};

template <class T>
struct Answer {
  std::vector<T> out, log_sum_exp, grad_qkv, grad_bias, grad_tables;
};

template <class T>
Answer<T> asked(const Case& one, const Given<T>& given, int threads, bool backward) {
  const size_t width = static_cast<size_t>(one.heads * one.head_size), tokens = given.visible.size();
  Answer<T> answer;
  answer.out.resize(tokens * width);
  answer.log_sum_exp.resize(tokens * static_cast<size_t>(one.heads));
  Call<T> call{};
  call.qkv = given.qkv.data();
  call.bias = given.bias.data();
  call.visible = given.visible.data();
  call.starts = given.starts.data();
  call.tables = given.tables.empty() ? nullptr : given.tables.data();
  call.tokens = static_cast<int64_t>(tokens);
  call.sequences = static_cast<int64_t>(one.lengths.size());
  call.heads = one.heads;
  call.head_size = one.head_size;
  call.reach = one.reach;
  call.encoding = one.encoding;
  call.dropout = one.dropout;
  call.seed = given.seed;
  call.out = answer.out.data();
  call.log_sum_exp = answer.log_sum_exp.data();
  nezha::run_forward(call, on(threads));
  if (!backward) return answer;
  answer.grad_qkv.resize(tokens * 3 * width);
  answer.grad_bias.resize(3 * width);
  answer.grad_tables.resize(given.tables.size());
  call.grad_out = given.grad_out.data();
  call.grad_qkv = answer.grad_qkv.data();
  nezha::run_backward(call, answer.grad_bias.data(), given.tables.empty() ? nullptr : answer.grad_tables.data(),
                      on(threads));
  return answer;
}

// What dropout multiplied each probability with, [tokens, heads, longest], read off the operator itself: equal scores,
// and values that are 1 for one key in each column.
template <class T>
std::vector<double> factors_of(const Case& one, const Given<T>& given, size_t longest) {
  const size_t tokens = given.visible.size(), heads = static_cast<size_t>(one.heads);
  const size_t size = static_cast<size_t>(one.head_size), width = heads * size;
  std::vector<double> factors(tokens * heads * longest, 1.0);
  if (one.dropout == 0) return factors;
  Case plain = one;
  plain.encoding = Encoding::absolute;
  plain.reach = 0;
  Given<T> probe = given;
  probe.tables.clear();
  probe.visible.assign(tokens, 1);
  probe.bias.assign(3 * width, T(0));
  for (size_t first = 0; first < longest; first += size) {
    probe.qkv.assign(tokens * 3 * width, T(0));
    for (size_t s = 0; s < one.lengths.size(); s++)
      for (size_t j = first; j < std::min(first + size, static_cast<size_t>(one.lengths[s])); j++)
        for (size_t h = 0; h < heads; h++)
          probe.qkv[(static_cast<size_t>(given.starts[s]) + j) * 3 * width + 2 * width + h * size + j - first] = 1;
    const Answer<T> answer = asked(plain, probe, 1, false);
    for (size_t s = 0; s < one.lengths.size(); s++)
      for (int64_t i = given.starts[s]; i < given.starts[s + 1]; i++)
        for (size_t h = 0; h < heads; h++)
          for (size_t j = first; j < std::min(first + size, static_cast<size_t>(one.lengths[s])); j++) {
            const size_t row = static_cast<size_t>(i);
            const double share = static_cast<double>(answer.out[row * width + h * size + j - first]);
            factors[(row * heads + h) * longest + j] = share * static_cast<double>(one.lengths[s]) > 0.5 / (1 - one.dropout) ? 1 / (1 - one.dropout) : 0.0;
          }
  }
  return factors;
}

// The definition, pair by pair, in double.
template <class T>
Answer<double> defined(const Case& one, const Given<T>& given) {
  const size_t heads = static_cast<size_t>(one.heads), size = static_cast<size_t>(one.head_size), width = heads * size;
  const size_t tokens = given.visible.size(), rows = 2 * static_cast<size_t>(one.reach) + 1;
  size_t longest = 0;
  for (const int64_t length : one.lengths) longest = std::max(longest, static_cast<size_t>(length));
  std::vector<double> keys(rows * size, 0.0), values(rows * size, 0.0);
  for (size_t r = 0; r < rows; r++)
    for (size_t d = 0; d < size; d++) {
      if (one.encoding == Encoding::functional_relative) {
        const double angle = static_cast<double>(r) / std::pow(10000.0, static_cast<double>(d / 2 * 2) / static_cast<double>(size));
        keys[r * size + d] = values[r * size + d] = d % 2 ? std::cos(angle) : std::sin(angle);
      } else if (one.encoding == Encoding::parametric_relative) {
        keys[r * size + d] = static_cast<double>(given.tables[r * size + d]);
        values[r * size + d] = static_cast<double>(given.tables[(rows + r) * size + d]);
      }
    }
  std::vector<double> qkv(given.qkv.size());
  for (size_t i = 0; i < qkv.size(); i++)
    qkv[i] = static_cast<double>(given.qkv[i]) + static_cast<double>(given.bias[i % (3 * width)]);
  const std::vector<double> factors = factors_of(one, given, longest);
  const double scale = 1.0 / std::sqrt(static_cast<double>(size));

  Answer<double> answer;
  answer.out.assign(tokens * width, 0.0);
  answer.log_sum_exp.assign(heads * tokens, -HUGE_VAL);
  answer.grad_qkv.assign(tokens * 3 * width, 0.0);
  answer.grad_bias.assign(3 * width, 0.0);
  answer.grad_tables.assign(given.tables.size(), 0.0);
  std::vector<double> probs(longest), slopes(longest);
  for (size_t s = 0; s < one.lengths.size(); s++) {
    const size_t first = static_cast<size_t>(given.starts[s]), length = static_cast<size_t>(one.lengths[s]);
    for (size_t h = 0; h < heads; h++)
      for (size_t f = 0; f < length; f++) {
        const double* q = &qkv[(first + f) * 3 * width + h * size];
        const auto row_of = [&](size_t t) {
          const int64_t far = static_cast<int64_t>(t) - static_cast<int64_t>(f), m = one.reach;
          return static_cast<size_t>(std::max(-m, std::min(m, far)) + m) * size;
        };
        double peak = -HUGE_VAL, total = 0, mean = 0;
        for (size_t t = 0; t < length; t++) {
          if (!given.visible[first + t]) continue;
          const double *k = &qkv[(first + t) * 3 * width + width + h * size], *a = &keys[row_of(t)];
          double score = 0;
          for (size_t d = 0; d < size; d++) score += q[d] * (k[d] + a[d]);
          probs[t] = score * scale;
          peak = std::max(peak, probs[t]);
        }
        for (size_t t = 0; t < length; t++) {
          probs[t] = given.visible[first + t] ? std::exp(probs[t] - peak) : 0.0;
          total += probs[t];
        }
        if (total == 0) continue;
        answer.log_sum_exp[h * tokens + first + f] = peak + std::log(total);
        const T* grad = &given.grad_out[(first + f) * width + h * size];
        for (size_t t = 0; t < length; t++) {
          if (probs[t] == 0) continue;
          probs[t] /= total;
          const double factor = factors[((first + f) * heads + h) * longest + t];
          const double *v = &qkv[(first + t) * 3 * width + 2 * width + h * size], *a = &values[row_of(t)];
          slopes[t] = 0;
          for (size_t d = 0; d < size; d++) {
            answer.out[(first + f) * width + h * size + d] += probs[t] * factor * (v[d] + a[d]);
            slopes[t] += factor * static_cast<double>(grad[d]) * (v[d] + a[d]);
          }
          mean += probs[t] * slopes[t];
        }
        for (size_t t = 0; t < length; t++) {
          if (probs[t] == 0) continue;
          const double weight = probs[t] * factors[((first + f) * heads + h) * longest + t];
          const double slope = probs[t] * (slopes[t] - mean) * scale;
          double* grads = &answer.grad_qkv[(first + t) * 3 * width + h * size];
          for (size_t d = 0; d < size; d++) {
            const double k = qkv[(first + t) * 3 * width + width + h * size + d];
            answer.grad_qkv[(first + f) * 3 * width + h * size + d] += slope * (k + keys[row_of(t) + d]);
            grads[width + d] += slope * q[d];
            grads[2 * width + d] += weight * static_cast<double>(grad[d]);
            if (one.encoding == Encoding::parametric_relative) {
              answer.grad_tables[row_of(t) + d] += slope * q[d];
              answer.grad_tables[rows * size + row_of(t) + d] += weight * static_cast<double>(grad[d]);
            }
          }
        }
      }
  }
  for (size_t i = 0; i < answer.grad_qkv.size(); i++) answer.grad_bias[i % (3 * width)] += answer.grad_qkv[i];
  return answer;
}

// Greatest deviation on the scale of the truth, or of `least_scale` where that is larger.
template <class T>
double deviation(const std::vector<T>& got, const std::vector<double>& truth, double least_scale) {
  double scale = least_scale, worst = 0;
  for (const double x : truth)
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
  for (size_t i = 0; i < truth.size(); i++) {
    const double x = static_cast<double>(got[i]);
    if (x == truth[i]) continue;  // -inf
    const double off = std::fabs(x - truth[i]);
    if (!(off <= HUGE_VAL) || std::isnan(off)) return HUGE_VAL;
    worst = std::max(worst, off);
  }
  return worst / scale;
}

int failures = 0;

template <class T>
void check(const Case& one, uint64_t seed, double limit) {
  Draw draw{seed};
  Given<T> given;
  given.starts.push_back(0);
  for (const int64_t length : one.lengths) given.starts.push_back(given.starts.back() + static_cast<int32_t>(length));
  given.visible = visible_of(one, &draw);
  const size_t tokens = given.visible.size(), width = static_cast<size_t>(one.heads * one.head_size);
  given.qkv = drawn<T>(&draw, tokens * 3 * width);
  for (size_t token = 0; token < tokens; token++)  // keys and values that are hidden must not matter
    if (!given.visible[token]) std::fill_n(&given.qkv[(3 * token + 1) * width], 2 * width, static_cast<T>(std::nan("")));
  given.bias = drawn<T>(&draw, 3 * width);
  given.grad_out = drawn<T>(&draw, tokens * width);
  if (one.encoding == Encoding::parametric_relative) {
    const int64_t rows = 2 * one.reach + 1;
    given.tables = drawn<T>(&draw, static_cast<size_t>(2 * rows * one.head_size));
    int64_t longest = 1;
    for (const int64_t length : one.lengths) longest = std::max(longest, length);
    for (int64_t row = 0; row < 2 * rows; row++)  // those that no pair is at must not be read
      if (std::abs(row % rows - one.reach) >= longest)
        std::fill_n(&given.tables[static_cast<size_t>(row * one.head_size)], one.head_size, static_cast<T>(std::nan("")));
  }
  given.seed = draw.next() << 32 ^ draw.next();

  const Answer<double> truth = defined(one, given);
  const Answer<T> answer = asked(one, given, 1, true), shared = asked(one, given, 3, true);
  // The key biases' gradient is 0 but for rounding, and so are a lone token's of queries and keys: all gradients are
  // judged on the scale of the largest. Those of biases and tables are sums over all tokens and errors.
  double slope = 1e-300;
  for (const double x : truth.grad_qkv) slope = std::max(slope, std::fabs(x));
  const double sum = slope * std::sqrt(static_cast<double>(tokens + 1));
  const struct {
    const char* name;
    double off, allowed;
  } parts[] = {{"out", deviation(answer.out, truth.out, 1e-300), limit},
               {"log_sum_exp", deviation(answer.log_sum_exp, truth.log_sum_exp, 1.0), limit},
               {"grad_qkv", deviation(answer.grad_qkv, truth.grad_qkv, slope), limit},
               {"grad_bias", deviation(answer.grad_bias, truth.grad_bias, sum), limit},
               {"grad_tables", deviation(answer.grad_tables, truth.grad_tables, sum), limit}};
  for (const auto& part : parts)
    if (!(part.off <= part.allowed)) {
      std::printf("%s is off by %.1e (%zu bytes a number): %s\n", part.name, part.off, sizeof(T), one.text().c_str());
      failures++;
    }
  const auto equal = [](const std::vector<T>& a, const std::vector<T>& b) {
    return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  };
  if (!(equal(answer.out, shared.out) && equal(answer.log_sum_exp, shared.log_sum_exp) &&
        equal(answer.grad_qkv, shared.grad_qkv) && equal(answer.grad_bias, shared.grad_bias) &&
        equal(answer.grad_tables, shared.grad_tables))) {
    std::printf("three threads give other numbers than one (%zu bytes a number): %s\n", sizeof(T), one.text().c_str());
    failures++;
  }
}

std::vector<Case> cases(int random) {
  const Encoding fixed = Encoding::functional_relative, learned = Encoding::parametric_relative,
                 absolute = Encoding::absolute;
  std::vector<Case> all{
      {{}, 2, 8, 5, fixed, Mask::none, 0},
      {{}, 2, 8, 5, learned, Mask::none, 0.3},
      {{0}, 1, 2, 1, learned, Mask::none, 0},
      {{0, 0, 3, 0}, 3, 6, 2, fixed, Mask::none, 0.5},
      {{1, 1, 1}, 2, 8, 127, fixed, Mask::holes, 0},
      {{5}, 1, 8, 4096, fixed, Mask::none, 0},
      {{5}, 1, 8, 999, learned, Mask::none, 0},
      {{66}, 1, 256, 64, fixed, Mask::none, 0},
      {{66}, 1, 256, 64, learned, Mask::padding, 0.25},
      {{20}, 1, 254, 7, learned, Mask::none, 0},
      {{9}, 2, 8, 5, fixed, Mask::none, 1.0},
      {{9}, 2, 8, 5, learned, Mask::nothing, 0.5},
      {{200, 1, 7, 130}, 1, 64, 64, fixed, Mask::none, 0},
      // Few, several and all of the angles kept; another number in float than in double; longer than the search goes.
      {{40}, 1, 64, 16, fixed, Mask::padding, 0},
      {{70}, 1, 80, 64, fixed, Mask::holes, 0.1},
      {{140}, 1, 64, 128, fixed, Mask::none, 0},
      {{530, 20}, 1, 64, 512, fixed, Mask::none, 0},
      {{100}, 1, 254, 64, fixed, Mask::none, 0},
      {{9}, 1, 256, 1, fixed, Mask::none, 0},
      {{20}, 1, 64, 2049, fixed, Mask::none, 0},
      // Long enough to be shared out among threads within a head, with a rest.
      {{450}, 1, 16, 64, fixed, Mask::holes, 0.1},
      {{389}, 1, 8, 17, learned, Mask::none, 0},
      // The block of queries shrinks as the keys grow: the shorter sequence takes the larger block.
      {{1368, 1360}, 1, 2, 3, fixed, Mask::none, 0},
      {{1370, 1350}, 1, 2, 3, learned, Mask::none, 0},
      {{2736, 2720}, 1, 2, 3, absolute, Mask::none, 0},
  };
  const int64_t lengths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 33, 47, 48, 49, 63, 64, 65, 66, 97, 127, 128, 129, 130};
  const int sizes[] = {2, 4, 6, 8, 14, 16, 32, 34, 64, 80, 128}, reaches[] = {1, 2, 5, 16, 63, 64, 65, 127, 200};
  const double dropouts[] = {0, 0, 0.1, 0.5, 0.99};
  Draw draw{20};
  for (int i = 0; i < random; i++) {
    Case one{};
    const int64_t count = 1 + draw.below(4);
    for (int64_t s = 0; s < count; s++) one.lengths.push_back(lengths[draw.below(22)]);
    one.heads = static_cast<int>(1 + draw.below(3));
    one.head_size = sizes[draw.below(11)];
    one.encoding = static_cast<Encoding>(draw.below(3));
    one.reach = one.encoding == absolute ? 0 : reaches[draw.below(9)];
    one.mask = static_cast<Mask>(draw.below(5));
    one.dropout = dropouts[draw.below(5)];
    all.push_back(one);
  }
  return all;
}

// At the base size half of the angles are enough; without this the results would be as good, and the time not.
template <class T>
void check_angles(int64_t step) {
  std::vector<T> cosines(16 * 16), sines(16 * 16);
  const int64_t kept = nezha::kept_angles(64, 32, step, cosines.data(), sines.data());
  if (kept != 16) {
    std::printf("%d of 32 angles are kept (%zu bytes a number, step %d)\n", static_cast<int>(kept), sizeof(T), static_cast<int>(step));
    failures++;
  }
}

}  // namespace

// driver [NUMBER]: so many random calls beside the chosen ones. PADDLE_NEZHA_ISA names the instruction set.
int main(int count, char** arguments) {
  const std::vector<Case> all = cases(count > 1 ? std::atoi(arguments[1]) : 40);
  for (const int64_t step : {4, 8, 16}) check_angles<float>(step);
  for (const int64_t step : {2, 4, 8}) check_angles<double>(step);
  uint64_t seed = 1;
  for (const Case& one : all) {
    // Sums of a few thousand products: 1e-12 is 4500 roundings of a double. In float, scores of up to 30 are off by
    // 4e-6 before they become exponents, and this much again in what they weigh.
    check<double>(one, seed, 1e-12);
    check<float>(one, seed, 2e-5);
    seed++;
  }
  std::printf("%zu calls in float and double, %d wrong\n", all.size(), failures);
  return failures != 0;
}
