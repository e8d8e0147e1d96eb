//! Builds again when the web app was built or removed; never builds it.

fn main() {
    // A watched path that does not exist would make every build a new one.
    let dist = std::path::Path::new("web/dist");
    let watched = if dist.exists() { "web/dist" } else { "web" };
    println!("cargo::rerun-if-changed={watched}");
}
