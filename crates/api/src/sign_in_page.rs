//! Pages for people in place of problems as JSON, above all for a browser that is not signed in.

use axum::{
    http::{HeaderMap, HeaderValue, Method, header},
    response::{IntoResponse, Response},
};

use super::error::{Code, Problem};

/// Paths whose clients are programs, which get a problem whatever they accept.
const PROGRAM_PATHS: [&str; 3] = ["/api", "/session", "/mcp"];

/// Returns whether a request is the navigation of a browser to a page of the server itself. Browsers send no
/// `Authorization` when they open a page.
pub(super) fn is_wanted(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let is_below = |base: &&str| {
        path.strip_prefix(*base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    *method == Method::GET
        && !PROGRAM_PATHS.iter().any(is_below)
        && !headers.contains_key(header::AUTHORIZATION)
        && accepts_html(headers)
}

/// Returns whether a client wants a page.
pub(super) fn accepts_html(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter();
    accepted.any(|value| value.to_str().is_ok_and(|value| value.contains("text/html")))
}

/// Responds with a page that says how to sign in, if that solves the problem.
pub(super) fn respond(problem: Problem) -> Response {
    let title = match problem.code() {
        Code::Unauthorized => "Sign in to Stead",
        Code::TooManyFailures => "Too many attempts",
        Code::Forbidden => "This link does not open this page",
        _ => return problem.into_response(),
    };
    let detail = match problem.code() {
        Code::TooManyFailures => format!("{}; try again in a minute", problem.detail()),
        _ => problem.detail().to_owned(),
    };
    page(
        problem,
        (title, &detail),
        "<p>Run <code>stead login</code> on the machine of the server and open the link that it prints. \
         Each link works once.</p>\n<p><a href=\"/\">Open the app</a></p>",
    )
}

/// Responds to a problem with a page: a title, a detail and advice, which is markup.
pub(super) fn page(problem: Problem, (title, detail): (&str, &str), advice: &str) -> Response {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<p>{}.</p>\n{advice}\n</html>\n",
        escape(&capitalize(detail))
    );
    let mut response = problem.into_response();
    *response.body_mut() = page.into();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

fn capitalize(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
