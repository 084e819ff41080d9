// A colour belongs to an object: the same volume has it in every chart, every range and every browser. It follows from
// the object's number, which no other one ever gets. What a line means without an object, such as what hosts wrote,
// is a role: roles have colours that no object has. The values are in style.css, for light and dark.

export const UNDERCOVER = "--undercover";
export const HOSTS = "--hosts";
export const READ = "--read";
export const CACHED = "--cached";
/** Of no object and of no role: means, and objects whose number is unknown. */
export const NEUTRAL = "--neutral";

/** How many --object-N the style sheet has. */
const COLOURS = 7;
/** Dashes tell them apart once more. */
const DASHES = [[], [8, 3], [2, 3], [8, 3, 2, 3], [14, 4]];

export interface Look {
  /** A custom property of the style sheet. */
  colour: string;
  dash: number[];
}

/** The look of object number n: colours first, dashes when they are used up. Volumes are numbered from 1, and pools from 0:
 * these take the colours from the other end, so that a pool does not look like a volume while there are few of both. */
export function look(kind: "volume" | "pool", n: number): Look {
  const colour = kind === "volume" ? n % COLOURS : (COLOURS - (n % COLOURS)) % COLOURS;
  return { colour: `--object-${colour}`, dash: DASHES[Math.floor(n / COLOURS) % DASHES.length] ?? [] };
}

/** The look of objects whose number is unknown: those of a history that an earlier version wrote. */
export const STRANGER: Look = { colour: NEUTRAL, dash: [2, 3] };
