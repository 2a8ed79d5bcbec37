// The page Roofline.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "roofline",
  title: "Roofline",
  key: "r",
  component: () => <Empty title="Roofline">This page is still to come.</Empty>,
};
