// Runs before the book's own script, which expects the address of a page.
// `/docs` is the book's first page, and the `type` of an error is `/docs#CODE`.
if (/^\/docs\/?$/.test(location.pathname)) {
  const { hash } = location;
  if (location.pathname === "/docs") history.replaceState(null, "", `/docs/${hash}`);
  if (/^#[a-z_]+$/.test(hash)) {
    document.addEventListener("DOMContentLoaded", () => {
      if (!document.getElementById(hash.slice(1))) location.replace(`/docs/reference/errors.html${hash}`);
    });
  }
}
