// respool: shapes tool results before opencode keeps them. Whatever fails, a result stays as it is.
import { spawn } from "node:child_process"

const COMMAND = [/* COMMAND */]
const MAX_MILLISECONDS = 10_000

const ask = (event, folder) =>
  new Promise((resolve) => {
    const child = spawn(COMMAND[0], COMMAND.slice(1), {
      cwd: folder,
      stdio: ["pipe", "pipe", "ignore"],
      timeout: MAX_MILLISECONDS,
    })
    const pieces = []
    child.on("error", () => resolve(null))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (piece) => pieces.push(piece))
    child.on("close", () => {
      try {
        resolve(JSON.parse(Buffer.concat(pieces).toString("utf8")).text ?? null)
      } catch {
        resolve(null)
      }
    })
    child.stdin.end(JSON.stringify(event))
  })

export const Respool = async ({ directory }) => ({
  "tool.execute.after": async (input, output) => {
    try {
      if (typeof output?.output !== "string" || !output.output) return
      const text = await ask(
        {
          session: input.sessionID,
          call: input.callID,
          tool: input.tool,
          arguments: input.args ?? {},
          text: output.output,
        },
        directory,
      )
      if (typeof text === "string") output.output = text
    } catch {
      // The result stays as it is.
    }
  },
})
