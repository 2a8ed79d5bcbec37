// The frame around the pages: navigation, what is viewed, the global selection, keys.
import { useEffect, useRef, useState } from "preact/hooks";
import { intoView } from "./framed";
import type { About } from "./page";
import { PAGES } from "./pages";
import { AboutContext } from "./parts/about";
import { useAnswer } from "./parts/answer";
import { visible } from "./parts/format";
import { type KernelNames, NamesOfKernels } from "./parts/kernel_names";
import { Header } from "./parts/header";
import { Keys } from "./parts/keys";
import { Catch, Empty, Failed } from "./parts/states";
import { Working } from "./parts/working";
import type { Source } from "./source";
import { address, GLOBAL, route } from "./state";

/** What a page that is `alone` has in place of what is not known yet. */
const UNKNOWN: About = { files: [], other: [], version: "", steps: null, devices: [], ranks: [], cpu_only: false, span: null, selected: null, merged: null, editor: false, of_runs: false, called: {}, empty: {} };

/** Parameters of what does not depend on the selection. */
const WHOLE = { steps: undefined, device: undefined, rank: undefined };

/** Draws again whenever the address changes. */
export function useRoute() {
  const [now, set] = useState(route);
  useEffect(() => {
    const changed = () => set(route());
    addEventListener("hashchange", changed);
    addEventListener("popstate", changed);
    return () => {
      removeEventListener("hashchange", changed);
      removeEventListener("popstate", changed);
    };
  }, []);
  return now;
}

/** The address of a page with the global selection of these parameters. */
function link(page: string, params: URLSearchParams): string {
  const kept = new URLSearchParams();
  for (const name of GLOBAL) {
    const value = params.get(name);
    if (value) kept.set(name, value);
  }
  return address(page, kept);
}

export function Shell({ source }: { source: Source }) {
  const { page: name, params } = useRoute();
  const page = PAGES.find((one) => one.name === name);
  const [drawn, setDrawn] = useState(false);
  const about = useAbout(source, drawn || !page?.alone);
  const kernels = useAnswer<KernelNames>(source, about.answer && !about.answer.empty["kernels"] ? "kernel_names" : null, WHOLE);
  const main = useRef<HTMLElement>(null);
  const [help, setHelp] = useState(false);

  useEffect(() => {
    const file = about.answer?.files[0];
    document.title = [page?.title, file && short(file), "opscope"].filter(Boolean).join(" · ");
    intoView(document.querySelector(".nav [aria-current]"));
  }, [name, about.answer]);
  useEffect(() => {
    main.current?.scrollTo(0, 0);
  }, [name]);

  return (
    <AboutContext.Provider value={about.answer ?? null}>
      <NamesOfKernels.Provider value={kernels.answer ?? null}>
      <a class="skip" href="#content" onClick={(event) => (event.preventDefault(), main.current?.focus())}>
        Skip to the page
      </a>
      <Header source={source} about={about.answer} params={params} onHelp={() => setHelp(true)} />
      <nav class="nav" aria-label="Pages">
        <ul>
          {PAGES.map((one) => (
            <li key={one.name}>
              <a
                href={link(one.name, params)}
                aria-current={one.name === name ? "page" : undefined}
                class={about.answer?.empty[one.name] ? "without" : undefined}
                title={about.answer?.empty[one.name] ? visible(about.answer.empty[one.name]!) : `g ${one.key}`}
              >
                {one.title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main class="main" id="content" tabIndex={-1} ref={main}>
        {about.error !== undefined ? (
          <Failed again={about.again}>{visible(about.error)}</Failed>
        ) : !about.answer && !page?.alone ? (
          about.loading && <Working source={source} meanwhile="Reading …" />
        ) : !page ? (
          <Empty title="No such page">
            There is no page “{visible(name.slice(0, 80))}”. <a href={link("overview", params)}>Overview</a>
          </Empty>
        ) : (
          <Catch name={name}>
            <h1>{page.title}</h1>
            {about.answer?.empty[page.name] ? (
              <Empty>{visible(about.answer.empty[page.name]!)}</Empty>
            ) : (
              <page.component key={page.name} source={source} about={about.answer ?? UNKNOWN} params={params} shown={() => setDrawn(true)} />
            )}
          </Catch>
        )}
      </main>
      <Keys open={help} onOpen={setHelp} />
      </NamesOfKernels.Provider>
    </AboutContext.Provider>
  );
}

/** What is viewed does not depend on the selection. */
function useAbout(source: Source, wanted: boolean) {
  return useAnswer<About>(source, wanted ? "about" : null, WHOLE);
}

function short(file: string): string {
  return visible(file.split(/[\\/]/).pop() ?? file).slice(0, 80);
}
