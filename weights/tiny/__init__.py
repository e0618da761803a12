"""The recipe of `nezha-tiny-chinese`: where its text comes from, how it is cleaned, its vocabulary, and what its
predictions are held against."""
