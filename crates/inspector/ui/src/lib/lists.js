// Lists as they were left: rows that were loaded on, and how far the viewer had scrolled. Of the last few, for as long as the page is open.

const MOST = 5;
const lists = new Map();

export const kept = {
  get: (address) => lists.get(address),
  set(address, list) {
    lists.delete(address);
    lists.set(address, list);
    if (lists.size > MOST) lists.delete(lists.keys().next().value);
  },
};
