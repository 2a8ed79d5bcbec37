// The page Notes.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "notes",
  title: "Notes",
  key: "n",
  component: () => <Empty title="Notes">This page is still to come.</Empty>,
};
