// The page Steps.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "steps",
  title: "Steps",
  key: "s",
  component: () => <Empty title="Steps">This page is still to come.</Empty>,
};
