// What happened: events with their date, by kind and by words.

import { useState } from "preact/hooks";
import type { Event } from "./api";
import { stamp } from "./format";
import { store } from "./store";

/** Kinds by what a reader looks for; faults are apart from administration. */
const KINDS: [label: string, kinds: Event["kind"][]][] = [
  ["All", ["undercover", "full", "fault", "change", "session", "node"]],
  ["Undercover and cache", ["undercover", "full"]],
  ["Faults", ["fault"]],
  ["Administration", ["change"]],
  ["Hosts", ["session"]],
  ["Nodes", ["node"]],
];

const NAMES: Record<Event["kind"], string> = { undercover: "undercover", full: "cache", fault: "fault", change: "administration", session: "host", node: "node" };

export const NOTHING_YET = "Nothing has happened since the daemon started. Log in with an initiator, or create a volume.";

/** A list of events, newest first. */
export function EventList({ list, empty }: { list: Event[]; empty: string }) {
  return (
    <ol class="events">
      {list.map((e) => (
        <li key={e.number} class={e.kind}>
          <time dateTime={e.time}>{stamp(e.time)}</time> <b>{NAMES[e.kind] ?? e.kind}</b> <span>{e.text}</span>
        </li>
      ))}
      {list.length === 0 && <li class="empty">{empty}</li>}
    </ol>
  );
}

export function Events() {
  const [kind, setKind] = useState(0);
  const [text, setText] = useState("");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = KINDS[kind]?.[1] ?? [];
  const list = store.events.filter((e) => wanted.includes(e.kind) && words.every((w) => `${stamp(e.time)} ${NAMES[e.kind]} ${e.text}`.toLowerCase().includes(w)));
  return (
    <>
      <div class="ranges" role="group" aria-label="Kinds of events">
        {KINDS.map(([label], i) => (
          <button key={label} type="button" aria-pressed={kind === i} onClick={() => setKind(i)}>
            {label}
          </button>
        ))}
      </div>
      <p class="search">
        <input type="search" aria-label="Search events" placeholder="Search ( / )" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        <output>
          {list.length} of {store.events.length}
        </output>
      </p>
      <section>
        <h2>Newest first</h2>
        <EventList list={list} empty={store.events.length === 0 ? NOTHING_YET : "No event matches. Choose All, or clear the search."} />
      </section>
      <p class="note">The daemon keeps the last 500 events in memory; audit.log in its data folder has every change.</p>
    </>
  );
}
