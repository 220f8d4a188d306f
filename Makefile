# Thin wrappers. Everything else is meson: meson setup build && ninja -C build.
.PHONY: demo check bench fuzz clean
demo:
	@packaging/demo
check:
	@tests/check
bench:
	@packaging/need-packages packaging/packages.build tests/packages.check tests/packages.bench
	@tests/bench/run $(GOALS)
fuzz:
	@packaging/need-packages packaging/packages.build tests/packages.check
	@tests/fuzz/run $(TARGETS)
clean:
	rm -rf build build-*
