// Dialogs in which something is changed. Changes need the token; without one it is asked for first.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, get, Refusal, token, type Volume } from "./api";
import { exactSize, parseSize } from "./format";
import { store } from "./store";

export interface Field {
  name: string;
  label: string;
  type: "text" | "size" | "number" | "check" | "choice";
  value?: string | number | boolean;
  choices?: string[];
  hint?: string;
  optional?: boolean;
}

export type Values = Record<string, string | number | boolean>;

export interface Form {
  title: string;
  text?: string;
  verb: string;
  fields?: Field[];
  danger?: boolean;
  /** What the daemon refuses but would do by force is offered once more. */
  forcible?: boolean;
  /** The dialog that comes first for these values, if they need one of their own. */
  before?: (v: Values) => Form | null;
  send: (v: Values, force: boolean) => Promise<unknown>;
}

function read(form: HTMLFormElement, fields: Field[]): Values {
  const out: Values = {};
  for (const f of fields) {
    const e = form.elements.namedItem(f.name) as HTMLInputElement;
    const text = e.value.trim();
    if (f.type === "check") out[f.name] = e.checked;
    else if (text === "" && f.optional) continue;
    else if (f.type === "number") {
      out[f.name] = Number(text);
      if (!/^\d+$/.test(text)) throw new Error(`${f.label}: ${text === "" ? "enter" : `“${text}” is not`} a whole number`);
    } else if (f.type === "size") {
      const n = parseSize(text);
      if (Number.isNaN(n)) throw new Error(`${f.label}: “${text}” is not a valid size; write one such as 512MiB, 1.5GiB or 100MB`);
      out[f.name] = n;
    } else {
      if (text === "") throw new Error(`${f.label} is missing`);
      out[f.name] = text;
    }
  }
  return out;
}

function Input({ f }: { f: Field }) {
  if (f.type === "check") {
    return (
      <label class="check">
        <input type="checkbox" name={f.name} defaultChecked={!!f.value} /> {f.label}
      </label>
    );
  }
  return (
    <label>
      {f.label}
      {f.type === "choice" ? (
        <select name={f.name} defaultValue={String(f.value ?? "")}>
          {f.choices?.map((c) => (
            <option key={c} selected={c === f.value}>
              {c}
            </option>
          ))}
        </select>
      ) : (
        <input name={f.name} type="text" inputMode={f.type === "number" ? "numeric" : "text"} defaultValue={String(f.value ?? "")} autocomplete="off" />
      )}
      {f.hint && <small>{f.hint}</small>}
    </label>
  );
}

/** The one dialog of the page. While it asks for the token, what was filled in stays. */
export function Dialog({ form, close, open }: { form: Form; close: () => void; open: (f: Form) => void }) {
  const box = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState("");
  const [force, setForce] = useState(false);
  const [busy, setBusy] = useState(false);
  const [locked, setLocked] = useState(token.get() === "");
  useEffect(() => box.current?.showModal(), []);
  useEffect(() => {
    box.current?.querySelector<HTMLElement>(locked ? "input[name=token]" : ".fields input, .fields select")?.focus();
  }, [locked]);

  const unlock = async (given: string) => {
    token.set(given);
    try {
      await call("POST", "/token");
    } catch (err) {
      token.set("");
      throw err;
    }
    setLocked(false);
  };

  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const target = e.currentTarget as HTMLFormElement;
    setBusy(true);
    setError("");
    try {
      if (locked) {
        await unlock((target.elements.namedItem("token") as HTMLInputElement).value.trim());
        return;
      }
      const values = read(target, form.fields ?? []);
      const first = form.before?.(values);
      if (first) {
        open(first);
        return;
      }
      await form.send(values, force);
      close();
      await store.refresh();
    } catch (err) {
      setError(err instanceof Error ? err.message : String(err));
      if (err instanceof Refusal) {
        setForce(err.force && !!form.forcible);
        if (err.status === 401) {
          token.set("");
          setLocked(true);
        }
      }
    } finally {
      setBusy(false);
    }
  };

  return (
    <dialog ref={box} onClose={close} aria-labelledby="dialog-title">
      <form onSubmit={(e) => void submit(e)}>
        <h2 id="dialog-title">{locked ? "Enter the token" : form.title}</h2>
        {locked && (
          <>
            <p>
              Changes require the array's token. To print it, run <code>arraysim token</code>
            </p>
            <label>
              Token
              <input name="token" type="password" autocomplete="off" />
            </label>
          </>
        )}
        <div class="fields" hidden={locked}>
          {form.text && <p>{form.text}</p>}
          {form.fields?.map((f) => <Input key={f.name} f={f} />)}
        </div>
        {error && <p role="alert">{error}</p>}
        <p class="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class={form.danger && !locked ? "danger" : "primary"} disabled={busy}>
            {locked ? "Unlock" : force ? `${form.verb} anyway` : form.verb}
          </button>
        </p>
      </form>
    </dialog>
  );
}

const path = encodeURIComponent;

/** Shrinking loses data, so it says how much and is asked by itself. Nothing is cut off a volume whose size has changed meanwhile. */
const shrink = (v: Volume, size: number): Form => ({
  title: `Shrink ${v.name}?`,
  text: `From ${exactSize(v.size)} to ${exactSize(size)}: the last ${exactSize(v.size - size)} (${(v.size - size).toLocaleString("en")} bytes) and the data in them are lost.`,
  verb: `Discard ${exactSize(v.size - size)}`,
  danger: true,
  send: async () => {
    const now = await get<Volume>(`/volumes/${path(v.name)}`);
    if (now.size !== v.size) throw new Error(`its size is ${exactSize(now.size)} now; start again`);
    await call("POST", `/volumes/${path(v.name)}/resize`, { size, force: true });
  },
});

/** What can be done, as forms. */
export const forms = {
  createVolume: (pools: string[]): Form => ({
    title: "New volume",
    verb: "Create",
    fields: [
      { name: "name", label: "Name", type: "text" },
      { name: "pool", label: "Pool", type: "choice", choices: pools, value: pools[0] ?? "" },
      { name: "size", label: "Size", type: "size", value: "1GiB", hint: "such as 512MiB or 10GiB" },
      { name: "lun", label: "LUN", type: "number", optional: true, hint: "visible to every initiator; leave it empty for no export" },
      { name: "thick", label: "Reserve all of its space (thick)", type: "check" },
    ],
    send: ({ lun, ...v }) => call("POST", "/volumes", lun === undefined ? v : { ...v, export: { lun } }),
  }),
  clone: (source: string, pools: string[], pool: string): Form => ({
    title: `Clone ${source}`,
    text: "The clone gets the data that this volume holds now. In a pool that copies data, and between pools, the array writes that data below the host layer.",
    verb: "Clone",
    fields: [
      { name: "name", label: "Name", type: "text", value: `${source}-copy` },
      { name: "pool", label: "Pool", type: "choice", choices: pools, value: pool },
    ],
    send: (v) => call("POST", `/volumes/${path(source)}/clone`, v),
  }),
  resize: (v: Volume): Form => ({
    title: `Resize ${v.name}`,
    text: `Its size is ${exactSize(v.size)}.`,
    verb: "Resize",
    fields: [{ name: "size", label: "Size", type: "size", value: exactSize(v.size) }],
    before: ({ size }) => (Number(size) < v.size ? shrink(v, Number(size)) : null),
    send: async ({ size }) => {
      if (size === v.size) throw new Error("it has that size already");
      await call("POST", `/volumes/${path(v.name)}/resize`, { size, force: false });
    },
  }),
  zero: (name: string): Form => ({
    title: `Zero ${name}`,
    text: "All data on the volume is lost.",
    verb: "Zero",
    danger: true,
    send: () => call("POST", `/volumes/${path(name)}/zero`),
  }),
  deleteVolume: (name: string): Form => ({
    title: `Delete ${name}`,
    text: "The volume and all of its data are lost.",
    verb: "Delete",
    danger: true,
    forcible: true,
    send: (_v, force) => call("DELETE", `/volumes/${path(name)}?force=${force}`),
  }),
  exportVolume: (name: string): Form => ({
    title: `Export ${name}`,
    verb: "Export",
    fields: [
      { name: "lun", label: "LUN", type: "number" },
      { name: "initiator", label: "Initiator", type: "text", optional: true, hint: "its iSCSI name; leave it empty for every initiator" },
    ],
    send: ({ lun, initiator }) => call("POST", "/exports", { volume: name, lun, initiators: initiator ? [initiator] : [] }),
  }),
  endExport: (name: string, lun: number): Form => ({
    title: `Remove the export of ${name}`,
    text: `Initiators lose LUN ${lun} at once.`,
    verb: "Remove",
    danger: true,
    send: () => call("DELETE", `/exports/${path(name)}?lun=${lun}`),
  }),
  createPool: (): Form => ({
    title: "New pool",
    verb: "Create",
    fields: [
      { name: "name", label: "Name", type: "text" },
      { name: "size", label: "Size of its mdisk", type: "size", value: "64GiB" },
      { name: "bandwidth", label: "Bandwidth per second", type: "size", optional: true, hint: "such as 64MiB; leave it empty for no limit" },
      { name: "copy_data", label: "Offloaded copies move data", type: "check", value: true },
    ],
    send: ({ name, copy_data, ...m }) => call("POST", "/pools", { name, copy_data, mdisks: [{ name: "m0", ...m }] }),
  }),
  deletePool: (name: string): Form => ({
    title: `Delete pool ${name}`,
    verb: "Delete",
    danger: true,
    send: () => call("DELETE", `/pools/${path(name)}`),
  }),
  writeMode: (pool: string, mode: string): Form => ({
    title: `Write mode of ${pool}`,
    verb: "Set",
    fields: [{ name: "write_mode", label: "Mode", type: "choice", choices: ["fast", "flush_through", "write_through"], value: mode }],
    send: (v) => call("PATCH", `/pools/${path(pool)}`, v),
  }),
  mdiskOffline: (pool: string, mdisk: string, offline: boolean): Form => ({
    title: offline ? `Take ${pool}.${mdisk} offline` : `Bring ${pool}.${mdisk} back`,
    text: offline ? "A fault: reads and writes of its data fail, and its dirty data stays pinned in the cache." : "The cache destages the data that was pinned.",
    verb: offline ? "Take offline" : "Bring back",
    danger: offline,
    send: () => call("PATCH", `/pools/${path(pool)}/mdisks/${path(mdisk)}`, { offline }),
  }),
  mdiskLimits: (pool: string, mdisk: string, bandwidth: number, iops: number): Form => ({
    title: `Limits of ${pool}.${mdisk}`,
    text: "A fault: a slow disk. 0 means no limit.",
    verb: "Set",
    fields: [
      { name: "bandwidth", label: "Bandwidth per second", type: "size", value: exactSize(bandwidth) },
      { name: "iops", label: "Operations per second", type: "number", value: iops },
    ],
    send: (v) => call("PATCH", `/pools/${path(pool)}/mdisks/${path(mdisk)}`, v),
  }),
  mirror: (mirrored: boolean): Form => ({
    title: mirrored ? "Fail the cache mirror" : "Restore the cache mirror",
    text: mirrored ? "A fault: as if the other node of the I/O group had failed. The cache is emptied, and writes go through to the back end." : "The cache accepts writes again.",
    verb: mirrored ? "Fail the mirror" : "Restore the mirror",
    danger: mirrored,
    send: () => call("PUT", "/mirror", { mirrored: !mirrored }),
  }),
};
