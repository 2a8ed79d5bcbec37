// The page Kernels.
import type { Page } from "../page";
import { Empty } from "../parts/states";

export const PAGE: Page = {
  name: "kernels",
  title: "Kernels",
  key: "k",
  component: () => <Empty title="Kernels">This page is still to come.</Empty>,
};
