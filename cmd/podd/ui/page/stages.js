// What the stages of an operation have in common: the part of the node that they wait for. Its class has the colour.

/** The parts, in the order in which a start comes to them. */
export const parts = [
  { name: "record", title: "record", stages: ["record", "sync", "remove record", "read back"] },
  { name: "namespaces", title: "namespaces", stages: ["namespaces", "unpin namespaces"] },
  { name: "network", title: "network (CNI)", stages: ["network", "detach from network"] },
  { name: "image", title: "image", stages: ["image", "images", "rootfs", "image volumes", "release root filesystem"] },
  { name: "files", title: "files, volumes", stages: ["files", "log", "volumes", "remove files", "unmount files"] },
  { name: "plugins", title: "NRI plugins", stages: ["plugins"] },
  {
    name: "runtime", title: "runtime",
    stages: ["infra container", "spec", "create", "verify", "start", "stop", "kill", "signal", "command",
      "delete container", "delete infra container", "delete by the runtime", "stop containers", "grace period",
      "update"],
  },
  { name: "other", title: "waiting, other", stages: [] },
];

const byStage = new Map(parts.flatMap((part) => part.stages.map((stage) => [stage, part])));

/** Returns the part that a stage belongs to. */
export function partOf(stage) {
  return byStage.get(stage) ?? parts.at(-1);
}
