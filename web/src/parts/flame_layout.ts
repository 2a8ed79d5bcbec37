// The layout of a flame graph: which frames are seen when one is zoomed, where, and what a search matches.

/** The answer of the question "flame": columns, each node after its parent, siblings by time. */
export interface FlameAnswer {
  by: string;
  /** What the time is: of the device, the ops' self time (without a GPU), or on the host. */
  measure: "device" | "self" | "host";
  total: number;
  family: Record<string, string>;
  names: string[];
  name: number[];
  kind: string[];
  link: (string | null)[];
  parent: number[];
  time: number[];
  own: number[];
  merged: number[];
  calls: (number | null)[];
}

export interface Tree extends FlameAnswer {
  depth: number[];
  children: number[][];
  /** Where a node begins, in ns from the root's begin; siblings by time, from the left. */
  begin: number[];
  deepest: number;
}

/** A frame as it is drawn: its node, its left edge and width as parts of the whole width, and its row. */
export interface Seen {
  node: number;
  left: number;
  width: number;
  row: number;
}

export function treeOf(answer: FlameAnswer): Tree {
  const many = answer.parent.length;
  const depth = new Array<number>(many).fill(0);
  const begin = new Array<number>(many).fill(0);
  const used = new Array<number>(many).fill(0);
  const children: number[][] = Array.from({ length: many }, () => []);
  let deepest = 0;
  for (let node = 0; node < many; node++) {
    const above = answer.parent[node]!;
    if (above < 0) continue;
    children[above]!.push(node);
    depth[node] = depth[above]! + 1;
    begin[node] = begin[above]! + used[above]!;
    used[above]! += answer.time[node]!;
    deepest = Math.max(deepest, depth[node]!);
  }
  return { ...answer, depth, begin, children, deepest };
}

/** Returns the frames that are seen when `zoomed` takes the whole width; none is narrower than `least`. */
export function seen(tree: Tree, zoomed: number, least: number): Seen[] {
  const whole = tree.time[zoomed];
  if (!whole) return [];
  const start = tree.begin[zoomed]!;
  const found: Seen[] = [];
  for (const node of path(tree, zoomed)) found.push({ node, left: 0, width: 1, row: tree.depth[node]! });
  const open = [...tree.children[zoomed]!];
  while (open.length) {
    const node = open.pop()!;
    const width = tree.time[node]! / whole;
    if (width < least) continue;
    found.push({ node, left: (tree.begin[node]! - start) / whole, width, row: tree.depth[node]! });
    for (const inner of tree.children[node]!) open.push(inner);
  }
  return found;
}

/** Returns the nodes from the root to this one. */
export function path(tree: Tree, node: number): number[] {
  const found: number[] = [];
  for (let at = node; at >= 0; at = tree.parent[at]!) found.push(at);
  return found.reverse();
}

export function nameOf(tree: FlameAnswer, node: number): string {
  const name = tree.names[tree.name[node]!] ?? "";
  return tree.kind[node] === "other" ? `… ${tree.merged[node]!.toLocaleString("en")} smaller` : name;
}

/** From which character on each node's name differs from that of the sibling whose name is most like it. */
export function apart(tree: Tree): number[] {
  const from = new Array<number>(tree.parent.length).fill(0);
  for (const siblings of tree.children) {
    const named = siblings.map((node) => ({ node, name: nameOf(tree, node) })).sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
    // the name most like another stands beside it in the order of names
    for (let at = 1; at < named.length; at++) {
      const [before, now] = [named[at - 1]!, named[at]!];
      if (before.name === now.name) continue;
      let common = 0;
      while (common < before.name.length && before.name[common] === now.name[common]) common++;
      from[before.node] = Math.max(from[before.node]!, common);
      from[now.node] = Math.max(from[now.node]!, common);
    }
  }
  return from;
}

/** A name in `most` characters: what is cut is what siblings share, and not what distinguishes it (at `from`). */
export function labelOf(name: string, most: number, from: number): string {
  if (name.length <= most) return name;
  if (most < 2) return "";
  // the namespaces go first
  const spaces = name.slice(0, Math.max(0, name.search(/[<(]|$/))).lastIndexOf("::") + 2;
  const bare = spaces > 2 && spaces <= from ? name.slice(spaces) : name;
  const at = Math.max(0, from - (name.length - bare.length));
  if (bare.length <= most) return bare;
  // what distinguishes it is seen in its first part
  if (at < most - 2) return `${bare.slice(0, most - 1)}…`;
  const head = most < 8 ? 0 : Math.floor(most / (most < 12 ? 8 : 3));
  const rest = most - head - 1;
  const begin = Math.min(at, bare.length - rest);
  const end = begin + rest < bare.length ? `${bare.slice(begin, begin + rest - 1)}…` : bare.slice(begin);
  return `${bare.slice(0, head)}…${end}`;
}

/** Marks the nodes whose name has the text, in any case, and returns their time: of nested ones once. */
export function matching(tree: Tree, text: string): { hit: boolean[]; time: number } {
  const wanted = text.toLowerCase();
  const many = tree.parent.length;
  const hit = new Array<boolean>(many).fill(false);
  const within = new Array<boolean>(many).fill(false);
  let time = 0;
  if (!wanted) return { hit, time };
  const named = tree.names.map((name) => name.toLowerCase().includes(wanted));
  for (let node = 0; node < many; node++) {
    const above = tree.parent[node]!;
    const around = above >= 0 && within[above]!;
    hit[node] = tree.kind[node] !== "other" && named[tree.name[node]!]!;
    within[node] = around || hit[node]!;
    if (hit[node] && !around) time += tree.time[node]!;
  }
  return { hit, time };
}

/** Returns the node to which an arrow key goes; the same one where there is none. */
export function neighbour(tree: Tree, node: number, key: string): number {
  const above = tree.parent[node]!;
  if (key === "ArrowUp") return above >= 0 ? above : node;
  if (key === "ArrowDown") return tree.children[node]![0] ?? node;
  if (above < 0) return node;
  const siblings = tree.children[above]!;
  const place = siblings.indexOf(node) + (key === "ArrowRight" ? 1 : -1);
  return siblings[place] ?? node;
}

/** Returns the family of op that colours a node: its own, else that of the op around it. */
export function familyOf(tree: FlameAnswer, node: number): string | null {
  for (let at = node; at >= 0; at = tree.parent[at]!) {
    if (tree.kind[at] === "op") return tree.family[tree.names[tree.name[at]!]!] ?? null;
    if (tree.kind[at] !== "kernel" && tree.kind[at] !== "copy" && tree.kind[at] !== "other") return null;
  }
  return null;
}
