//! The web app and the book, as the binary embeds them.

use std::io::Read;

use flate2::read::GzDecoder;

use harness::{Home, Server};

#[test]
fn pages_are_the_same_for_clients_with_and_without_gzip() {
    let home = Home::new();
    let server = Server::start(&home);
    for path in ["/", "/docs"] {
        let plain = server.stranger().get(path);
        plain.expect_status(200);
        assert_eq!(plain.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert_eq!(plain.header("content-encoding"), None, "{path}");
        let get = || server.stranger().request("GET", path).header("accept-encoding", "br, gzip");
        let packed = get().send();
        packed.expect_status(200);
        assert_eq!(packed.header("content-type"), plain.header("content-type"), "{path}");
        if packed.header("content-encoding").is_none() {
            // A binary that was built without the app or the book contains a page that says so.
            assert_eq!(packed.text(), plain.text(), "{path}");
            continue;
        }
        let mut text = Vec::new();
        GzDecoder::new(&*packed.body).read_to_end(&mut text).unwrap();
        assert!(text == plain.body && text.len() > packed.body.len(), "{path}");
        let tag = packed.header("etag").unwrap();
        assert_ne!(Some(tag), plain.header("etag"), "{path}");
        get().header("if-none-match", tag).send().expect_status(304);
    }
    // The name under which the binary stores a page is not an address.
    server.stranger().get("/index.html.gz").expect_status(401);
}
