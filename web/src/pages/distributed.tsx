// The page Distributed.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "distributed",
  title: "Distributed",
  key: "d",
  component: () => <Empty title="Distributed">This page is still to come.</Empty>,
};
