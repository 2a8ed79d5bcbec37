// The page Source.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "source",
  title: "Source",
  key: "c",
  component: () => <Empty title="Source">This page is still to come.</Empty>,
};
