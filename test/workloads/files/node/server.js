// Serves its number of requests so far, kept in a file, and the heap that it may use.
const fs = require('fs')
const file = '/data/requests'
let requests = fs.existsSync(file) ? Number(fs.readFileSync(file)) : 0
const server = require('http').createServer((request, response) => {
	if (request.url === '/limits') {
		response.end(String(require('v8').getHeapStatistics().heap_size_limit))
		return
	}
	console.log('request ' + ++requests)
	response.end(String(requests))
})
process.on('SIGTERM', () => {
	server.closeAllConnections()
	server.close(() => {
		fs.writeFileSync(file, String(requests))
		console.log('saved ' + requests)
	})
})
server.listen(8080)
