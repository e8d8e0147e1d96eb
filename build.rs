//! Builds again when the web app or the packed book was built or removed; never builds them.

use std::path::Path;

fn main() {
    // A watched path that does not exist would make every build a new one.
    for (built, otherwise) in [("web/dist", "web"), ("docs/.vitepress/embedded", "docs/public")] {
        let watched = if Path::new(built).exists() { built } else { otherwise };
        println!("cargo::rerun-if-changed={watched}");
    }
}
