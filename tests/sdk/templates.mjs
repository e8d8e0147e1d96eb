// Templates built with E2B's own JavaScript client on a running server.

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

// Creating a sandbox waits for the start command only up to a timeout.
const UP = 'until [ -s /tmp/up ]; do sleep 0.1; done; '

const { Sandbox, Template, BuildError, waitForFile } = createRequire(process.env.SDK_DIR + '/')('e2b')

async function output(name, command) {
  const sandbox = await Sandbox.create(name, { timeoutMs: 600_000 })
  try {
    return (await sandbox.commands.run(command)).stdout
  } finally {
    await sandbox.kill()
  }
}

test('a template is built and used by sandboxes', async () => {
  const context = mkdtempSync(join(tmpdir(), 'stead-js-'))
  try {
    writeFileSync(join(context, 'sent.txt'), 'sent')
    const template = Template({ fileContextPath: context })
      .fromBaseImage()
      .setEnvs({ WORD: 'set' })
      .copy('sent.txt', '/srv/app/')
      .setWorkdir('/srv/app')
      .runCmd('echo $WORD > word.txt')
      .setStartCmd('echo up > /tmp/up; exec sleep 1000', waitForFile('/tmp/up'))
    const lines = []
    const info = await Template.build(template, 'of-js:v1', { onBuildLogs: (line) => lines.push(line.message) })
    assert.deepEqual(info.tags, ['v1'])
    assert.ok(lines.includes('the build is ready'), lines.join('\n'))
    assert.equal(await output('of-js:v1', UP + 'pwd; cat sent.txt word.txt /tmp/up; echo $WORD'), '/srv/app\nsentset\nup\nset\n')
    await Template.assignTags('of-js:v1', 'default')
    const onTop = Template().fromTemplate('of-js').runCmd('echo more >> word.txt; rm -f /tmp/up')
    await Template.build(onTop, 'of-js-two')
    // The start command is that of the template beneath.
    assert.equal(await output('of-js-two', UP + 'cat word.txt /tmp/up; pwd'), 'set\nmore\nup\n/srv/app\n')
    assert.equal(await Template.exists('of-js-two'), true)
    assert.equal(await Template.exists('of-js-three'), false)
    const tags = await Template.getTags('of-js')
    assert.deepEqual(tags.map((tag) => tag.tag).sort(), ['default', 'v1'])
  } finally {
    rmSync(context, { recursive: true })
  }
})

test('a failed step is reported', async () => {
  const template = Template().fromBaseImage().runCmd('true').runCmd('echo why >&2; exit 3')
  await assert.rejects(Template.build(template, 'fails-js'), (error) => {
    assert.ok(error instanceof BuildError, String(error))
    assert.match(error.message, /exit code 3: why/)
    return true
  })
})
