"""The benchmarks' own library; tests/bench/run is the entry."""
