//! Sets `cfg(loom)` for this package and none of its dependencies.

fn main() {
    println!("cargo::rustc-cfg=loom");
    println!("cargo::rerun-if-changed=build.rs");
}
