// Starts the pages of a single file: unpacks their script, which the page's content policy allows by its hash.
async function start(): Promise<void> {
  const packed = document.getElementById("opscope-script")?.textContent ?? "";
  const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.body.append(script);
}

start().catch((error: unknown) => {
  const words = document.createElement("p");
  words.setAttribute("role", "alert");
  words.textContent =
    typeof DecompressionStream === "undefined"
      ? "This browser is too old to unpack the file: it lacks DecompressionStream (Chrome 80, Firefox 113, Safari 16.4 have it)."
      : `This file is damaged, its script cannot be unpacked: ${String(error)}`;
  document.getElementById("viewer")?.prepend(words);
});
