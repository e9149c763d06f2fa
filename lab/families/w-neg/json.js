let kept = 0;
for (let n = 0; ; n++) {
  const rows = Array.from({ length: 300 }, (_, i) => ({ id: i, name: "n" + (i * 31 + n) % 97, tags: [i % 3, "t" + i] }));
  const back = JSON.parse(JSON.stringify(rows));
  const groups = new Map();
  for (const row of back) { if (!groups.has(row.name)) groups.set(row.name, []); groups.get(row.name).push(row); }
  kept += [...groups.keys()].sort().filter((k) => /^n[0-9]*7$/.test(k)).length;
}
