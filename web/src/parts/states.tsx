// What a page says when it has nothing to show: loading, an error, or no data, each in words.
import { Component, type ComponentChildren } from "preact";
import type { Answered } from "./answer";
import { visible } from "./format";
import { Working } from "./working";

export function Empty({ title, children }: { title?: string; children: ComponentChildren }) {
  return (
    <div class="empty">
      {title && <h2>{title}</h2>}
      <p>{children}</p>
    </div>
  );
}

export function Failed({ children, again }: { children: ComponentChildren; again?: () => void }) {
  return (
    <div class="failed" role="alert">
      <p>{children}</p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Draws an answer, or says that it is on its way or why there is none. */
export function Await<T>({ of, children }: { of: Answered<T>; children: (answer: T) => ComponentChildren }) {
  if (of.error !== undefined) return <Failed again={of.again}>{visible(of.error)}</Failed>;
  if (of.answer === undefined) {
    return of.loading ? <Working source={of.source} /> : null;
  }
  return (
    <div class={of.stale && of.loading ? "stale" : undefined} aria-busy={of.stale}>
      {children(of.answer)}
    </div>
  );
}

interface CatchState {
  failure: string | null;
}

/** Says in words that a page could not be drawn; the rest of the viewer goes on. */
export class Catch extends Component<{ children: ComponentChildren; name: string }, CatchState> {
  override state: CatchState = { failure: null };

  override componentDidCatch(failure: unknown): void {
    this.setState({ failure: failure instanceof Error ? failure.message : String(failure) });
  }

  override componentDidUpdate(before: { name: string }): void {
    if (before.name !== this.props.name && this.state.failure !== null) this.setState({ failure: null });
  }

  render() {
    if (this.state.failure === null) return this.props.children;
    return (
      <Failed again={() => this.setState({ failure: null })}>
        This page could not be drawn: {visible(this.state.failure)}. The other pages still work; please report this.
      </Failed>
    );
  }
}
