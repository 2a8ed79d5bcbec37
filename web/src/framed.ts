// A page inside a frame that was given as text (a notebook's cell): relative addresses mean the page around it, so
// the hash is set instead of links being followed.

/** Whether this page is such a frame. */
export function framed(): boolean {
  return location.protocol === "about:";
}

/** Makes links to hashes stay in the frame. */
export function stay(): void {
  if (!framed()) return;
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href^='#']") : null;
    const href = link?.getAttribute("href");
    if (!href || event.defaultPrevented) return;
    event.preventDefault();
    location.hash = href;
  });
}

/** Scrolls until an element is seen; in a frame the page around it stays where it is. */
export function intoView(element: Element | null | undefined): void {
  if (!element) return;
  if (!framed()) {
    element.scrollIntoView({ block: "nearest", inline: "nearest" });
    return;
  }
  for (let box = element.parentElement; box; box = box.parentElement) {
    const one = element.getBoundingClientRect();
    const all = box.getBoundingClientRect();
    box.scrollLeft += Math.min(0, one.left - all.left) || Math.max(0, one.right - all.right);
    box.scrollTop += Math.min(0, one.top - all.top) || Math.max(0, one.bottom - all.bottom);
  }
}
