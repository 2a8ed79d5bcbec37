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
