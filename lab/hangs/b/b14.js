const { execFileSync } = require("child_process"); setInterval(() => {}, 500);
setTimeout(() => { console.log(execFileSync("sh", ["-c", "sleep 6543 | cat"]).toString()); }, 150);
