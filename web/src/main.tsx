// Starts the viewer: chooses the source of answers and draws the frame around the pages.
import { render } from "preact";
import { Shell } from "./shell";
import { embedded, FileSource } from "./file";
import { stay } from "./framed";
import { ServerSource } from "./source";
import { follow } from "./parts/theme";
import "./viewer.css";

const place = document.getElementById("viewer");
if (place) {
  follow();
  stay();
  place.textContent = "";
  render(<Shell source={embedded() ? new FileSource() : new ServerSource()} />, place);
}
