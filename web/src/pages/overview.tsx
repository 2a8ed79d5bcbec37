// The page Overview.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "overview",
  title: "Overview",
  key: "o",
  component: () => <Empty title="Overview">This page is still to come.</Empty>,
};
