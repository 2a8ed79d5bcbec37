// Starts the viewer: chooses the source of answers and draws the frame around the pages.
import { render } from "preact";

const place = document.getElementById("viewer");
if (place) {
  place.textContent = "";
  render(<p>…</p>, place);
}
