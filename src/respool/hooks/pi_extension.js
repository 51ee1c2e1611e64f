// respool: shapes tool results before pi keeps them. Whatever fails, a result stays as it is.
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

export default function (pi) {
  pi.on("tool_result", async (event, context) => {
    try {
      const [block, ...others] = event.content ?? []
      if (others.length || block?.type !== "text" || !block.text) return
      const text = await ask(
        {
          session: context.sessionManager.getSessionId(),
          transcript: context.sessionManager.getSessionFile() ?? "",
          call: event.toolCallId,
          tool: event.toolName,
          arguments: event.input ?? {},
          text: block.text,
          failed: event.isError === true,
        },
        context.cwd,
      )
      if (typeof text === "string") return { content: [{ type: "text", text }] }
    } catch {
      // The result stays as it is.
    }
  })
}
