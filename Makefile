# Thin wrappers. Everything else is meson: meson setup build && ninja -C build.
.PHONY: demo check check-vm bench fuzz deb tar figures clean
demo:
	@packaging/demo
check:
	@tests/check
check-vm:
	@tests/vm/check $(PAYLOADS)
bench:
	@packaging/need-packages packaging/packages.build tests/packages.check tests/packages.bench
	@tests/bench/run $(GOALS)
fuzz:
	@packaging/need-packages packaging/packages.build tests/packages.check
	@tests/fuzz/run $(TARGETS)
deb:
	@packaging/deb
tar:
	@packaging/tarball
figures:
	@packaging/figures
clean:
	rm -rf build build-*
