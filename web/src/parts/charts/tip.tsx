// A tooltip of a chart.
import "./charts.css";

/** A tooltip inside a positioned element, kept within its width. */
export function Tip(props: { left: number; top: number; width: number; lines: string[] }) {
  const right = props.left > props.width / 2;
  return (
    <div
      class="tip"
      role="status"
      style={
        right
          ? { right: `${Math.max(0, props.width - props.left + 12)}px`, top: `${props.top + 12}px` }
          : { left: `${Math.max(0, props.left + 12)}px`, top: `${props.top + 12}px` }
      }
    >
      {props.lines.map((line, index) => (index ? <div key={index}>{line}</div> : <b key={index}>{line}</b>))}
    </div>
  );
}
