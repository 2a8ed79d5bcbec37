// The page Compare.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "compare",
  title: "Compare",
  key: "x",
  component: () => <Empty title="Compare">This page is still to come.</Empty>,
};
