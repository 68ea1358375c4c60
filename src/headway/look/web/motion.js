// What moves on the page: 150 to 300 ms, and nothing for those who prefer less motion.

export const MOVE = 240; // milliseconds

export function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// Calls act(share) in each frame, from 0 to 1 with soft ends; at once with 1 where nothing shall move.  A promise of its
// end, which a later call of the same `owner` cuts short.
export function glide(owner, milliseconds, act) {
  const turn = (owner.turn = (owner.turn ?? 0) + 1);
  if (still() || document.hidden) return Promise.resolve(act(1));
  const start = performance.now();
  return new Promise((resolve) => {
    const frame = () => {
      if (owner.turn !== turn) return resolve();
      const share = Math.min(1, (performance.now() - start) / milliseconds);
      act(share * share * (3 - 2 * share));
      if (share < 1) requestAnimationFrame(frame);
      else resolve();
    };
    frame();
  });
}
