// The page Operators.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "operators",
  title: "Operators",
  key: "p",
  component: () => <Empty title="Operators">This page is still to come.</Empty>,
};
