// The page Layers.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "layers",
  title: "Layers",
  key: "l",
  component: () => <Empty title="Layers">This page is still to come.</Empty>,
};
