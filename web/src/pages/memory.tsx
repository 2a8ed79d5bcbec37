// The page Memory.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "memory",
  title: "Memory",
  key: "m",
  component: () => <Empty title="Memory">This page is still to come.</Empty>,
};
