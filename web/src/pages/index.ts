// The pages, in the order of the navigation.
import type { Page } from "../page";
import { PAGE as compare } from "./compare";
import { PAGE as distributed } from "./distributed";
import { PAGE as kernels } from "./kernels";
import { PAGE as layers } from "./layers";
import { PAGE as memory } from "./memory";
import { PAGE as notes } from "./notes";
import { PAGE as operators } from "./operators";
import { PAGE as overview } from "./overview";
import { PAGE as reports } from "./reports";
import { PAGE as roofline } from "./roofline";
import { PAGE as serving } from "./serving";
import { PAGE as source } from "./source";
import { PAGE as steps } from "./steps";
import { PAGE as timeline } from "./timeline";

export const PAGES: Page[] = [
  overview,
  operators,
  kernels,
  layers,
  steps,
  timeline,
  roofline,
  memory,
  distributed,
  serving,
  source,
  compare,
  reports,
  notes,
];
