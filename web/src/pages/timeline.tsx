// The page Timeline.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "timeline",
  title: "Timeline",
  key: "t",
  component: () => <Empty title="Timeline">This page is still to come.</Empty>,
};
