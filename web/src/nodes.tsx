// The nodes that show the array: who has it, who forwards, and what happened to them recently.

import type { ComponentChildren } from "preact";
import type { NodeStatus } from "./api";
import { EventList } from "./events";
import { count, span, stamp } from "./format";
import { store } from "./store";
import { Table } from "./table";

const ALONE =
  "This array has one node. To show its LUNs from others as well, write a section node in the configuration of each, as docs/nodes.md says, start them, and they are listed here.";
const QUIET = "None since this process started. Start or stop a node, or move the array with: arraysim instance move --to NODE, and it is listed here.";

/** What is not known is no zero. */
const known = (v: number | undefined, show: (v: number) => string): string => (v === undefined ? "–" : show(v));

function state(n: NodeStatus): ComponentChildren {
  switch (n.state) {
    case "owner":
      return <b>owner</b>;
    case "away":
      return <strong class="strong">away</strong>;
    default:
      return n.state;
  }
}

/** The end of a node's link: the owner has none to itself. */
const link = (n: NodeStatus): string => (n.state === "owner" && !n.address ? "–" : n.state === "away" ? "broken" : (n.address ?? "–"));

export function Nodes() {
  const s = store.status;
  if (!s) return <p class="empty">…</p>;
  const own = s.ownership;
  const nodes = s.nodes ?? [];
  const owner = nodes.find((n) => n.state === "owner");
  const fact = (what: string, value: ComponentChildren) => (
    <div key={what}>
      <dt>{what}</dt>
      <dd>{value}</dd>
    </div>
  );
  return (
    <>
      {own && (
        <dl class="facts" id="ownership">
          {fact("This process", own.state)}
          {fact("Owner", owner ? `node ${owner.id} ${owner.name}` : own.owner || "–")}
          {fact("Owner since", known(own.since === undefined ? undefined : Date.parse(own.since), (t) => stamp(t)))}
          {fact("Epoch", <span title="Each takeover, move and start raises it">{known(own.epoch, String)}</span>)}
          {fact("Lease renewed", known(own.lease_age_s, (age) => `${age < 10 ? age.toFixed(1) : Math.round(age)} s ago`))}
        </dl>
      )}
      {own?.trouble && (
        <p role="alert">
          The cluster is in trouble{own.trouble_since ? `, for ${span((Date.now() - Date.parse(own.trouble_since)) / 1000)}` : ""}: {own.trouble}
        </p>
      )}
      <Table
        id="nodes"
        label="nodes"
        rows={nodes}
        keyOf={(n) => String(n.id)}
        sort="ID"
        ascending
        empty={ALONE}
        columns={[
          { name: "Node", value: (n) => n.name },
          { name: "ID", number: true, value: (n) => n.id },
          { name: "State", value: (n) => n.state, cell: state },
          { name: "Stands by", wide: true, title: "It takes the array where its owner leaves it", value: (n) => (n.state === "owner" ? "–" : n.stands_by ? "yes" : "no") },
          { name: "Link", wide: true, title: "The address of its other end", value: link },
          { name: "Target ports", wide: true, title: "Each is a target port group, too", value: (n) => n.ports.join(", ") },
          { name: "Sessions", number: true, wide: true, value: (n) => n.sessions ?? 0 },
          { name: "Forwarded/s", number: true, value: (n) => store.forwarded.get(n.id) ?? 0, cell: (n) => known(n.state === "owner" ? undefined : store.forwarded.get(n.id), count) },
          { name: "Forwarded", number: true, wide: true, title: "Commands", value: (n) => n.commands ?? 0, cell: (n) => known(n.state === "owner" ? undefined : (n.commands ?? 0), count) },
        ]}
      />
      {nodes.length > 0 && !store.elsewhere && (
        <section id="takeovers">
          <h2>Takeovers, moves and links</h2>
          <EventList list={store.events.filter((e) => e.kind === "node").slice(0, 50)} empty={QUIET} />
        </section>
      )}
    </>
  );
}
