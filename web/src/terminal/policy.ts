/**
 * Lets xterm draw under a content security policy without inline styles.
 *
 * xterm makes `<style>` elements and fills them, and its DOM renderer writes `style` attributes; the policy
 * refuses both. Constructed style sheets (`adoptedStyleSheets`) and the CSSOM are allowed. So
 * `createElement("style")` returns an inert element that puts its text into such a sheet, and a span's
 * `style` attribute is set through the CSSOM.
 */

let installed = false;

/** Must run before the first terminal is created. Idempotent. */
export function installStylePolicy(): void {
  if (installed) return;
  installed = true;
  const create = document.createElement.bind(document);
  const patched = (name: string, options?: ElementCreationOptions): HTMLElement =>
    name === "style" ? sheetElement(create("xterm-style")) : create(name, options);
  document.createElement = patched as typeof document.createElement;

  const plain = HTMLSpanElement.prototype.setAttribute;
  HTMLSpanElement.prototype.setAttribute = function (name: string, value: string): void {
    if (name === "style") this.style.cssText = value;
    else plain.call(this, name, value);
  };
}

function sheetElement(element: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  let text = "";
  element.hidden = true;
  Object.defineProperty(element, "textContent", {
    get: () => text,
    set(value: string) {
      text = value;
      sheet.replaceSync(value);
      if (!document.adoptedStyleSheets.includes(sheet)) document.adoptedStyleSheets.push(sheet);
    },
  });
  const remove = element.remove.bind(element);
  element.remove = () => {
    remove();
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
  };
  return element;
}
