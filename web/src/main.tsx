// The frame around the pages: navigation, keys, theme, token.

import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { token } from "./api";
import { size, stamp } from "./format";
import { Dialog, type Form } from "./forms";
import { Events } from "./events";
import { Overview } from "./overview";
import { Nodes } from "./nodes";
import { Hosts, Pools, VolumePage, Volumes } from "./pages";
import { store } from "./store";

const PAGES = ["overview", "volumes", "pools", "hosts", "events", "nodes"] as const;
const THEMES = ["auto", "light", "dark"] as const;

/** What an address says; one that is not encoded right is taken as it is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Takes #token=… out of the address: it is no page, and must not stay in the history. */
function takeToken(): void {
  const m = /^#token=(.+)$/.exec(location.hash);
  if (!m?.[1]) return;
  token.set(decoded(m[1]));
  history.replaceState(null, "", "#/overview");
}

function route(): { page: string; name: string } {
  const [, page = "overview", name = ""] = location.hash.split("/");
  return { page: page || "overview", name: decoded(name) };
}

/** A view's one title: its heading, and that of the window. */
function title(page: string, name: string): string {
  if (page === "volume") return `Volume ${name}`;
  return PAGES.some((p) => p === page) ? page.charAt(0).toUpperCase() + page.slice(1) : "No such page";
}

function keys(e: KeyboardEvent): void {
  const at = e.target as HTMLElement;
  if (e.ctrlKey || e.metaKey || e.altKey || at.closest("input, select, textarea, dialog")) return;
  const page = PAGES[Number(e.key) - 1];
  if (page) location.hash = `#/${page}`;
  else if (e.key === "/") document.querySelector<HTMLInputElement>("input[type=search]")?.focus();
  else if (e.key === "p") store.pause(!store.paused);
  else return;
  e.preventDefault();
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("arraysim.theme") ?? "auto");
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
    localStorage.setItem("arraysim.theme", theme);
    document.dispatchEvent(new CustomEvent("theme"));
  }, [theme]);
  return (
    <select aria-label="Colours" value={theme} onChange={(e) => setTheme(e.currentTarget.value)}>
      {THEMES.map((t) => (
        <option key={t}>{t}</option>
      ))}
    </select>
  );
}

function Page({ at, open }: { at: { page: string; name: string }; open: (form: Form) => void }) {
  switch (at.page) {
    case "overview":
      return <Overview open={open} />;
    case "volumes":
      return <Volumes open={open} />;
    case "volume":
      return <VolumePage key={at.name} name={at.name} open={open} />;
    case "pools":
      return <Pools open={open} />;
    case "hosts":
      return <Hosts />;
    case "events":
      return <Events />;
    case "nodes":
      return <Nodes />;
    default:
      return <p class="empty">There is no page “{decoded(at.page)}”. Choose one of the links above.</p>;
  }
}

/** What browsers say of a daemon that is not there says nothing more. */
const unreachable = (error: string) => /^(Failed to fetch|Load failed|NetworkError)/.test(error);

function App() {
  const [, tick] = useState(0);
  const [at, setAt] = useState(route());
  const [form, setForm] = useState<Form | null>(null);
  useEffect(() => {
    const off = store.subscribe(() => tick((n) => n + 1));
    const moved = () => {
      takeToken();
      setAt(route());
    };
    window.addEventListener("hashchange", moved);
    window.addEventListener("keydown", keys);
    store.start();
    return () => {
      off();
      store.stop();
      window.removeEventListener("hashchange", moved);
      window.removeEventListener("keydown", keys);
    };
  }, []);

  const heading = useRef<HTMLHeadingElement>(null);
  const shown = useRef("");
  const name = title(at.page, at.name);
  // With the view and not after it: whoever is quicker would lose the focus, and what he types.
  useLayoutEffect(() => {
    document.title = `${name} · arraysim`;
    if (shown.current !== "" && shown.current !== name && !document.activeElement?.closest("nav")) heading.current?.focus();
    shown.current = name;
  }, [name]);
  useEffect(() => {
    store.chart(at.page === "overview" ? "" : at.page === "volume" ? at.name : null);
  }, [name]);

  const s = store.status;
  return (
    <>
      <header>
        <a class="brand" href="#/overview">
          arraysim
        </a>
        <nav aria-label="Pages">
          {PAGES.map((p, i) => (
            <a key={p} href={`#/${p}`} aria-current={at.page === p || (p === "volumes" && at.page === "volume") ? "page" : undefined} title={`key ${i + 1}`}>
              {p}
            </a>
          ))}
        </nav>
        <span class="status" title={s ? `${s.version}, data in ${s.data}` : ""}>
          {s ? `iscsi ${s.portal}${store.elsewhere ? "" : `, ${size(s.dirty)} dirty`}` : "…"}
        </span>
        <button type="button" aria-pressed={store.paused} title="key p" onClick={() => store.pause(!store.paused)}>
          {store.paused ? "Resume" : "Pause"}
        </button>
        <Theme />
      </header>
      {store.error && (
        <p role="alert" class="offline">
          The daemon does not answer{unreachable(store.error) ? "" : ` (${store.error})`}. {store.heard > 0 ? `The data shown is from ${stamp(store.heard)}. ` : ""}The page tries again every second. To start the daemon: arraysim serve
        </p>
      )}
      <main class={store.error ? "old" : ""}>
        <h1 ref={heading} tabIndex={-1}>
          {name}
        </h1>
        {/* No alert: how long something has failed changes each second, and would be read out each time. */}
        {s?.health && (
          <ul id="health" aria-label="What fails now">
            {s.health.map((line, i) => (
              <li key={i}>{line}</li>
            ))}
          </ul>
        )}
        {store.elsewhere && at.page !== "nodes" ? (
          <p class="empty">{store.elsewhere.charAt(0).toUpperCase() + store.elsewhere.slice(1)}. Choose Nodes (key 6), which says who has it.</p>
        ) : (
          <Page at={at} open={setForm} />
        )}
      </main>
      <footer>
        Keys: 1 to 6 choose a page, / searches, p pauses. The same figures: <a href="/metrics">/metrics</a>, <a href="/api/v1/openapi.json">API</a>, <code>arraysim top</code>
      </footer>
      {form && <Dialog key={form.title} form={form} close={() => setForm(null)} open={setForm} />}
    </>
  );
}

takeToken();
const root = document.getElementById("app");
if (root) render(<App />, root);
