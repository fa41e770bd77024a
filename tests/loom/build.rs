//! Sets `cfg(loom)` for this package and none of its dependencies; not under Miri, which runs the plain tests instead.

fn main() {
    if std::env::var_os("CARGO_CFG_MIRI").is_none() {
        println!("cargo::rustc-cfg=loom");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
